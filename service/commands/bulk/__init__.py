"""`candor predict` and `candor score`: files of rows, through a running service and without one."""
