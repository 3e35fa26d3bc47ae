"""What runs, how far it is, and how to see it; reads what others leave and changes nothing."""
