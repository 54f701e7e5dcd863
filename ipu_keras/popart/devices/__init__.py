"""The devices that sessions run on."""
