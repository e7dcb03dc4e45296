package egress

import "net/netip"

const (
	// DoorHost is the name of the server itself in every sandbox, at port 80. It is not a host of the internet.
	DoorHost = "arbe.internal"
	// DoorOrigin is the URL of DoorHost.
	DoorOrigin = "http://" + DoorHost
)

// doorAddress is the address of [DoorHost]. It is in the half of [pool] that other names do not use, so that it stays
// the same when another server takes over the sandbox.
var doorAddress = netip.MustParseAddr("198.19.0.1")
