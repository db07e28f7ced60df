package api

import "errors"

// ErrStale says that a session is no longer the node's: it was cancelled away,
// ended or given to another attempt. What the node has of it is of no use.
var ErrStale = errors.New("the session is no longer this node's")
