"""Commands for the person on call."""
