"""`explain`: what the service makes of one message, step by step."""
