"""`lamina bench fake`: how fast metadata is computed without data: FakeLikeTensor beside torch's own."""
