"""Migrations of the state, which `service.state.migrating` runs."""
