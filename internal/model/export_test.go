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

// Checked returns the events of a stream as the libraries get them.
func Checked(from io.Reader, d Dialect) io.Reader {
	size := 0
	return newEvents(from, d, func() int { size += 4096; return size }, func([]byte) {})
}
