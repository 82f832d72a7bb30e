"""Inside the tools that people already use; each file needs a library of the extra `integrations`."""
