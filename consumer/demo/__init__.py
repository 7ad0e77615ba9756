"""The demo: a simulated fleet, an embedded broker, and the real service between them."""
