"""The built files of the web page. The HTTP front serves them."""
