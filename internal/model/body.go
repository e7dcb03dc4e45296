package model

import (
	"bytes"
	"encoding/json"

	"github.com/arbe-dev/arbe/internal/entry"
)

// object is a JSON object with varying fields.
type object map[string]any

// marshal writes JSON without escaping < and &.
func marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	err := to.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// cacheMark ends the part that Anthropic is asked to cache, directly or through OpenRouter.
var cacheMark = object{"type": "ephemeral"}

// dataURL is an image as a URL.
func dataURL(image entry.PiBlock) string { return "data:" + image.MIMEType + ";base64," + image.Data }
