"""Where the time of one operation on a tensor subclass goes, part by part: `lamina bench layers --anatomy`."""
