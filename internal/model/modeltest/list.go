package modeltest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// Offer makes the server list only these models, and accept only this key; any key if it is empty. Without Offer, a
// server lists two models and the pattern "*", because it answers for any model.
func (s *Server) Offer(key string, models ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offer = offer{models: models}
	if key != "" {
		s.offer.keys = []string{key}
	}
}

// Asked returns the number of requests for the list, or for something else that needs no model.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// accepts reports whether the server accepts the key of a request. Otherwise it refuses the request.
func (s *Server) accepts(w http.ResponseWriter, r *http.Request, d Dialect) bool {
	s.mu.Lock()
	keys := s.offer.keys
	s.mu.Unlock()
	if len(keys) == 0 || slices.Contains(keys, keyOf(r.Header)) {
		return true
	}
	refuse(w, d, Refused(d, http.StatusUnauthorized))
	return false
}

// list answers a request for the server's models, in the dialect of the request's headers and path.
func (s *Server) list(w http.ResponseWriter, r *http.Request) (is bool) {
	if r.Method != http.MethodGet {
		return false
	}
	dialect := Chat
	switch r.URL.Path {
	case "/v1beta/models":
		dialect = Gemini
	case "/v1/models", "/models", "/v1/key", "/key":
		if r.Header.Get("Anthropic-Version") != "" {
			dialect = Messages
		}
	default:
		return false
	}
	s.mu.Lock()
	s.asked++
	models := s.offer.models
	s.mu.Unlock()
	isKey := strings.HasSuffix(r.URL.Path, "/key")
	if !s.accepts(w, r, dialect) {
		return true
	}
	if models == nil {
		models = []string{"fake-answer", "fake-tool~run_command", "*"}
	}
	data := []object{}
	for _, id := range models {
		switch dialect {
		case Gemini:
			data = append(data, object{"name": "models/" + id, "supportedGenerationMethods": []string{"generateContent", "countTokens"}})
		case Messages:
			data = append(data, object{"id": id, "type": "model", "display_name": id, "capabilities": object{"batch": object{"supported": true}}})
		default:
			data = append(data, object{"id": id, "object": "model", "created": 1, "owned_by": "modeltest"})
		}
	}
	answer := object{"object": "list", "data": data}
	switch {
	case isKey:
		answer = object{"data": object{"label": "sk-or-v1-abc...def", "limit": nil, "usage": 0}}
	case dialect == Gemini:
		answer = object{"models": data}
	case dialect == Messages:
		answer = object{"data": data, "has_more": false, "first_id": nil, "last_id": nil}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer) //nolint:errcheck // the client has left
	return true
}
