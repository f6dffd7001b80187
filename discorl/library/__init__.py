"""Rules as files: the catalogue of names, formats, downloads."""
