package stream

import "github.com/arbe-dev/arbe/internal/stream/store"

// Ref names a log by the id of the house that owns it and its name in that house.
type Ref = store.Ref
