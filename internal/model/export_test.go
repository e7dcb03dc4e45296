package model

import (
	"io"
	"net/http"
)

// Over makes a client use a transport in place of the network.
func (c *Client) Over(t http.RoundTripper) *Client {
	c.once.Do(func() { c.public, c.open = t, t })
	return c
}

// MaxEvent is how many bytes an event may have.
const MaxEvent = maxEvent

// Catalogued is what the catalog keeps about a provider.
type Catalogued = catalogued

// Check reads all events of a stream as they are checked.
func Check(from io.Reader, d Dialect) error {
	size := 0
	events := newEvents(from, d, func() int { size += 4096; return size })
	for {
		if _, err := events.next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
