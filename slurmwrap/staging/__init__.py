"""Node-local copies of hot data.

``Stager(NodeCache(place, node=…), …).stage_in(source)`` copies a file or folder to this node, or
finds that it is there.
"""
