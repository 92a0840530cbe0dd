"""The HTTP front: JSON routes, AI SDK streams and the server that carries them."""
