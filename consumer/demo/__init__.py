"""The demo: a made-up fleet, an embedded broker, and the real service between them."""
