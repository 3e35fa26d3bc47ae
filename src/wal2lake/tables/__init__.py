"""The tables that a pipeline keeps: what is known of each, as one document, and how it comes to be known."""
