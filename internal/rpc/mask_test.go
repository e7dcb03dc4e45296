package rpc

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestWhatAMaskMakesOfARequest(t *testing.T) {
	t.Parallel()
	request := func() *arbev1.UpdateBotRequest {
		return &arbev1.UpdateBotRequest{HouseId: "h", Id: "b", Etag: "e", SkipModelCheck: true, Name: new("Bot"), Model: new("a/b"), Tools: &arbev1.Names{Values: []string{"bash"}}}
	}
	for name, c := range map[string]struct {
		paths []string
		want  func(*arbev1.UpdateBotRequest) // changes the request to what is wanted
		names string                         // what the error names
	}{
		"nothing, if it is empty":                      {paths: []string{}, want: func(*arbev1.UpdateBotRequest) {}},
		"a change of what is listed":                   {paths: []string{"name", "tools"}, want: func(r *arbev1.UpdateBotRequest) { r.Model = nil }},
		"an empty value of what is listed and not set": {paths: []string{"instructions"}, want: func(r *arbev1.UpdateBotRequest) { r.Name, r.Model, r.Tools, r.Instructions = nil, nil, nil, new("") }},
		"an empty message of one that is listed and not set": {paths: []string{"limits"}, want: func(r *arbev1.UpdateBotRequest) {
			r.Name, r.Model, r.Tools, r.Limits = nil, nil, nil, &arbev1.BotLimits{}
		}},
		"a change of all for *": {paths: []string{"*"}, want: func(r *arbev1.UpdateBotRequest) {
			r.Handle, r.Instructions, r.Think, r.Limits, r.Ask = new(""), new(""), new(""), &arbev1.BotLimits{}, &arbev1.Names{}
		}},
		"an error for a field that does not exist": {paths: []string{"name", "shoe_size"}, names: `"shoe_size"`},
		"an error for a part of a field":           {paths: []string{"limits.turn_usd"}, names: `"limits.turn_usd"`},
		"an error for what says which bot":         {paths: []string{"id"}, names: `"id"`},
		"an error for the etag":                    {paths: []string{"etag"}, names: `"etag"`},
		"an error for what says how":               {paths: []string{"skip_model_check"}, names: `"skip_model_check"`},
		"an error for a path that is empty":        {paths: []string{""}, names: `""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := request(), request()
			got.UpdateMask = &fieldmaskpb.FieldMask{Paths: c.paths}
			want.UpdateMask = &fieldmaskpb.FieldMask{Paths: c.paths}
			err := Services{}.mask(t.Context(), got)
			if c.names != "" {
				if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "update_mask: "+c.names) {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if c.want(want); err != nil || !proto.Equal(got, want) {
				t.Errorf("it is %v (%v), want %v", got, err, want)
			}
		})
	}
}

func TestAMaskInJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"id": "h", "updateMask": "name,defaultEnvironmentId"}`:         {"name", "defaultEnvironmentId"},
		`{"update_mask": "default_environment_id", "id": "h"}`:           {"default_environment_id"},
		`{"updateMask": "*", "id": "h"}`:                                 {"*"},
		`{"id": "h", "ask": {"values": ["x"]}, "updateMask": "no such"}`: {"no such"},
		`{"id": "h", "updateMask": ""}`:                                  nil,
		`{"id": "h", "updateMask": null}`:                                nil,
		`{"id": "h", "name": "updateMask"}`:                              nil,
	} {
		request := &arbev1.UpdateHouseRequest{}
		if err := (strictJSON{}).Unmarshal([]byte(text), request); err != nil || !slices.Equal(request.GetUpdateMask().GetPaths(), want) || request.GetId() != "h" {
			t.Errorf("%s is %v (%v)", text, request, err)
		}
	}
	for text, says := range map[string]string{
		`{"updateMask": "*", "updateMask": "name"}`:  "duplicate field",
		`{"updateMask": "*", "update_mask": "name"}`: "duplicate field",
		`{"updateMask": "*", "id": 7}`:               "at 1:27",
		`{"updateMask": ["name"]}`:                   "at 1:16",
		`{"updateMask": "*"`:                         "not the JSON",
		`"updateMask"`:                               "cannot be read",
	} {
		if err := (strictJSON{}).Unmarshal([]byte(text), &arbev1.UpdateHouseRequest{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
