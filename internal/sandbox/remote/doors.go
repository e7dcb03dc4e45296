package remote

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// doors are the doors of boxes.
type doors struct {
	mu   sync.Mutex
	take func(net.Conn, sandbox.Labels) // nil until the server has doors
	open map[string]*door               // by ref
	// relays holds what [Relayed].Relays has answered.
	relays map[string]relays
	work   sync.WaitGroup
}

type relays struct {
	relays bool
	of     sandbox.Labels
}

// door is an open door, or one that could not be opened and rests.
type door struct {
	ref    string
	of     sandbox.Labels
	tried  chan struct{} // closed when it is open, or cannot be opened
	gone   chan struct{} // closed when it is another door's turn
	cancel context.CancelFunc

	mu   sync.Mutex
	used time.Time
}
