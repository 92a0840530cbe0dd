"""The web page: its built files, as they are served. How they are served is the HTTP front's business."""
