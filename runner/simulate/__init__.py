"""The tool simulator: one contract, one pure state machine, served to the worker as an MCP server and as a command (B13, B14).

Boundary: see each module. contract.py (the file), state.py and machine.py (pure), trace.py (the evidence), mcp_door.py and command_door.py (the two doors), serving.py (HTTP),
server.py (its thread).
"""
