"""One agent living in one environment: acting, remembering, learning. Every loop is built on it."""
