package rpc

import (
	"slices"
	"strconv"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// wireEnum returns the value of an enum for a word of the domain. [arbev1.Word] is the way back.
func wireEnum[E arbev1.Enum, W ~string](word W) E {
	value, _ := arbev1.FromWord[E](string(word)) // TestEveryWordOfTheDomainHasAValue compares all words
	return value
}

// checkEnums returns an error if an enum in a request has a value that its field cannot have. The rules of the contract refuse it,
// too, but their errors have only numbers.
func checkEnums(request protoreflect.Message) error {
	fields := request.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Cardinality() == protoreflect.Repeated || f.HasPresence() && !request.Has(f) {
			continue
		}
		switch {
		case f.Enum() != nil:
			if number := request.Get(f).Enum(); !slices.Contains(allowed(f), number) {
				return fault.New(fault.Invalid, notOneOf(f, valueName(f.Enum(), number)), correct)
			}
		case f.Message() != nil:
			if err := checkEnums(request.Get(f).Message()); err != nil {
				return err
			}
		}
	}
	return nil
}

// allowed returns the values that a field with an enum can have.
func allowed(f protoreflect.FieldDescriptor) (numbers []protoreflect.EnumNumber) {
	rules, err := protovalidate.ResolveFieldRules(f)
	for i := range f.Enum().Values().Len() {
		number := f.Enum().Values().Get(i).Number()
		in, out := rules.GetEnum().GetIn(), rules.GetEnum().GetNotIn()
		if err == nil && (len(in) > 0 && !slices.Contains(in, int32(number)) || slices.Contains(out, int32(number))) {
			continue
		}
		numbers = append(numbers, number)
	}
	return numbers
}

// notOneOf says that a field cannot have a value, and which values it can have.
func notOneOf(f protoreflect.FieldDescriptor, value string) string {
	var names []string
	for _, number := range allowed(f) {
		if number != 0 {
			names = append(names, valueName(f.Enum(), number))
		}
	}
	return string(f.Name()) + ": " + value + " is not one of " + strings.Join(names, ", ")
}

// valueName returns the name of a value, or the number of one that this version does not know.
func valueName(enum protoreflect.EnumDescriptor, number protoreflect.EnumNumber) string {
	if known := enum.Values().ByNumber(number); known != nil {
		return string(known.Name())
	}
	return strconv.Itoa(int(number))
}

// enumError matches protojson's error about a name that an enum does not have.
var enumError = lazyregexp.New(`^invalid value for enum field (\w+): (.*)$`)

// unknownName rewords protojson's error about a name that an enum does not have. It returns "" for any other error.
func unknownName(request protoreflect.MessageDescriptor, said string) string {
	found := enumError.FindStringSubmatch(said)
	if found == nil {
		return ""
	}
	f := enumField(request, found[1])
	if f == nil {
		return ""
	}
	return notOneOf(f, found[2])
}

// enumField looks up an enum field by its JSON name, in a message or in the messages of its fields. It returns nil if no field has
// the name.
func enumField(of protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := of.Fields().ByJSONName(name); f != nil && f.Enum() != nil {
		return f
	}
	for i := range of.Fields().Len() {
		if inner := of.Fields().Get(i).Message(); inner != nil && inner.ParentFile().Package() == of.ParentFile().Package() {
			if f := enumField(inner, name); f != nil {
				return f
			}
		}
	}
	return nil
}
