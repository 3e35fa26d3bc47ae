"""The local web page: what status, tables and log say, for a browser; it changes nothing unless it was told it may."""
