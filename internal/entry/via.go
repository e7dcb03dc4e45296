package entry

// Via is the program with which a chat or command was said, if it was not a browser. It is taken from the request and
// proves nothing.
type Via struct {
	// Client is the program: one of [ViaCLI] and [ViaAPI].
	Client string `json:"client"`
	// Key is the name of the API key at that time; empty without a key and for the command line.
	Key string `json:"key,omitempty"`
}

// The values of Via.Client.
const (
	ViaCLI = "cli"
	ViaAPI = "api"
)

// String returns a short label: "CLI", "key deploy" or "API".
func (v Via) String() string {
	switch {
	case v.Client == ViaCLI:
		return "CLI"
	case v.Key != "":
		return "key " + OneLine(v.Key, 40)
	}
	return "API"
}

// Stored returns the value for an entry's payload: nil for a browser.
func (v Via) Stored() *Via {
	if v.Client == "" {
		return nil
	}
	return &v
}
