package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// updateRequest is the request of a call that changes a resource.
type updateRequest interface {
	proto.Message
	GetUpdateMask() *fieldmaskpb.FieldMask
}

// kept are the fields of an update that a mask neither names nor clears: they say which resource is changed, and how.
var kept = []protoreflect.Name{"id", "house_id", "agent_id", "etag", "skip_model_check", "update_mask"}

// mask applies the mask of an update, so that a method finds in its request only what it must change: a field that is not listed
// is cleared, and a listed one that is not set gets its empty value. Whether it can be empty is checked later. Without a mask, it
// does nothing.
func (s Services) mask(ctx context.Context, request updateRequest) error {
	paths := request.GetUpdateMask().GetPaths()
	if len(paths) == 0 {
		return nil
	}
	if of, ok := request.(*arbev1.UpdateNotificationsRequest); ok {
		return s.maskSettings(ctx, of, paths)
	}
	m := request.ProtoReflect()
	listed, err := listedFields(m.Descriptor(), paths)
	if err != nil {
		return err
	}
	for _, f := range changeable(m.Descriptor()) {
		switch {
		case !slices.Contains(listed, f):
			m.Clear(f)
		case !m.Has(f) && f.Message() != nil:
			m.Set(f, m.NewField(f))
		case !m.Has(f):
			m.Set(f, f.Default())
		}
	}
	return nil
}

// maskSettings applies a mask whose paths are fields of the request's settings. Fields that the mask does not list get their
// present values, because the method replaces all settings.
func (s Services) maskSettings(ctx context.Context, request *arbev1.UpdateNotificationsRequest, paths []string) error {
	listed, err := listedFields(request.GetSettings().ProtoReflect().Descriptor(), paths)
	if err != nil {
		return err
	}
	now, err := (&notificationService{s}).GetNotifications(ctx, &arbev1.GetNotificationsRequest{})
	if err != nil {
		return err
	}
	from, to := request.GetSettings().ProtoReflect(), now.GetSettings().ProtoReflect()
	for _, f := range listed {
		if from.Has(f) {
			to.Set(f, from.Get(f))
		} else {
			to.Clear(f)
		}
	}
	request.Settings = now.GetSettings()
	return nil
}

// changeable returns the fields of a message that a mask can list.
func changeable(m protoreflect.MessageDescriptor) (fields []protoreflect.FieldDescriptor) {
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); !slices.Contains(kept, f.Name()) {
			fields = append(fields, f)
		}
	}
	return fields
}

// listedFields returns the fields that the paths of a mask list. A path is the name of a field in the contract or in JSON, or "*"
// for all.
func listedFields(m protoreflect.MessageDescriptor, paths []string) (listed []protoreflect.FieldDescriptor, err error) {
	all := changeable(m)
	for _, path := range paths {
		if path == "*" {
			listed = append(listed, all...)
			continue
		}
		i := slices.IndexFunc(all, func(f protoreflect.FieldDescriptor) bool { return string(f.Name()) == path || f.JSONName() == path })
		if i < 0 {
			names := each(all, func(f protoreflect.FieldDescriptor) string { return string(f.Name()) })
			return nil, fault.Newf(fault.Invalid, "list some of: "+strings.Join(names, ", ")+"; or * for all", "update_mask: %.100q is not a field that this call can change", path)
		}
		listed = append(listed, all[i])
	}
	return listed, nil
}

// unmarshal decodes JSON as protojson does, but accepts all masks, which [listedFields] checks. protojson refuses "*", and the
// names of the contract.
func unmarshal(text []byte, m proto.Message) error {
	update, ok := m.(updateRequest)
	if !ok {
		return protojson.Unmarshal(text, m)
	}
	text, paths := cutMask(text)
	err := protojson.Unmarshal(text, m)
	if err == nil && paths != nil {
		update.GetUpdateMask().Paths = paths
	}
	return err
}

// cutMask empties the mask in the JSON of an update, and returns its paths. The text keeps its length, so that the positions in
// errors are right.
func cutMask(text []byte) (rest []byte, paths []string) {
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return text, nil
	}
	for d.More() {
		var value json.RawMessage
		name, err := d.Token()
		if err != nil || d.Decode(&value) != nil {
			return text, nil
		}
		var list string
		if name != "updateMask" && name != "update_mask" || json.Unmarshal(value, &list) != nil || list == "" {
			continue
		}
		end := int(d.InputOffset())
		rest = slices.Clone(text)
		copy(rest[end-len(value):end], `""`+strings.Repeat(" ", len(value)-len(`""`)))
		return rest, strings.Split(list, ",")
	}
	return text, nil
}
