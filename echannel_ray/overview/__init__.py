"""What a namespace runs, and what its channels do: asked of its actors by whoever watches, without joining it."""
