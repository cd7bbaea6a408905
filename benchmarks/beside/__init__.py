"""Other packages that show attention, measured beside this one: each in a process of its own."""
