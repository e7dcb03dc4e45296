package arbev1

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Enum is an enum of the contract.
type Enum interface {
	~int32
	protoreflect.Enum
}

// Word returns the word that the log and the command line use for a value of an enum: "running" for THREAD_STATUS_RUNNING, and
// "result-collection" for FAILURE_PHASE_RESULT_COLLECTION. It returns "" for the unspecified value, and the number of a value that
// this version does not know.
func Word(value protoreflect.Enum) string {
	values := value.Descriptor().Values()
	known := values.ByNumber(value.Number())
	switch {
	case value.Number() == 0:
		return ""
	case known == nil:
		return strconv.Itoa(int(value.Number()))
	}
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(string(known.Name()), prefix(values))), "_", "-")
}

// FromWord returns the value of an enum that a word stands for, and whether there is one. The empty word is the unspecified value.
func FromWord[E Enum](word string) (E, bool) {
	if word == "" {
		return 0, true
	}
	values := E(0).Descriptor().Values()
	name := prefix(values) + strings.ReplaceAll(strings.ToUpper(word), "-", "_")
	known := values.ByName(protoreflect.Name(name))
	if known == nil || Word(E(known.Number())) != word {
		return 0, false
	}
	return E(known.Number()), true
}

// Words returns the words of all values of an enum but the unspecified one.
func Words[E Enum]() (all []string) {
	values := E(0).Descriptor().Values()
	for i := range values.Len() {
		if number := values.Get(i).Number(); number != 0 {
			all = append(all, Word(E(number)))
		}
	}
	return all
}

// prefix returns what the names of all values of an enum begin with.
func prefix(values protoreflect.EnumValueDescriptors) string {
	return strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
}
