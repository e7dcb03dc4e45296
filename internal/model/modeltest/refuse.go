package modeltest

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
)

type object map[string]any

// Refused returns the refusal with which a provider of the dialect answers a request with an HTTP status: 401, 404, 429,
// 500 or 529.
func Refused(d Dialect, status int) Reply {
	openai := map[int]Error{
		401: {"invalid_request_error", "invalid_api_key", "Incorrect API key provided. You can find your API key at https://platform.openai.com/account/api-keys."},
		404: {"invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."},
		429: {"requests", "rate_limit_exceeded", "Rate limit reached for requests per min. Please try again later."},
		500: {"server_error", "", "The server had an error while processing your request. Sorry about that!"},
		529: {"server_error", "", "The engine is currently overloaded, please try again later"},
	}
	anthropic := map[int]Error{
		401: {"authentication_error", "", "invalid x-api-key"},
		404: {"not_found_error", "", "model: fake-404"},
		429: {"rate_limit_error", "", "This request would exceed your organization's rate limit."},
		500: {"api_error", "", "Internal server error"},
		529: {"overloaded_error", "", "Overloaded"},
	}
	google := map[int]Error{
		401: {"UNAUTHENTICATED", "", "Request had invalid authentication credentials."},
		404: {"NOT_FOUND", "", "models/fake-404 is not found for API version v1beta, or is not supported for generateContent."},
		429: {"RESOURCE_EXHAUSTED", "", "Resource has been exhausted (e.g. check quota)."},
		500: {"INTERNAL", "", "An internal error has occurred. Please retry."},
		503: {"UNAVAILABLE", "", "The model is overloaded. Please try again later."},
	}
	switch d {
	case Messages:
		return Reply{Status: status, Error: anthropic[status]}
	case Gemini:
		if status == 529 {
			status = 503
		}
		return Reply{Status: status, Error: google[status]}
	}
	if status == 529 { // only Anthropic has this status
		return Reply{Status: 503, Error: openai[529]}
	}
	return Reply{Status: status, Error: openai[status]}
}

// refuse answers with an error in the dialect.
func refuse(w http.ResponseWriter, d Dialect, reply Reply) {
	w.Header().Set("Content-Type", cmp.Or(reply.ContentType, "application/json"))
	w.WriteHeader(reply.Status)
	if reply.Garbage != "" {
		io.WriteString(w, reply.Garbage) //nolint:errcheck // the client has left
		return
	}
	json.NewEncoder(w).Encode(wireError(d, reply.Error)) //nolint:errcheck // the client has left
}

func wireError(d Dialect, e Error) any {
	if d == Gemini {
		return object{"error": object{"code": 503, "status": e.Type, "message": e.Message}}
	}
	if d == Messages {
		return object{"type": "error", "error": object{"type": e.Type, "message": e.Message}, "request_id": "req_1"}
	}
	return object{"error": object{"message": e.Message, "type": e.Type, "param": nil, "code": orNull(e.Code)}}
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}
