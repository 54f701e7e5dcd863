"""The devices that sessions run on, and the manager that finds them."""
