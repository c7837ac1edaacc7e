package join

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
)

// Change is a field of Submariner.spec that joining again changes. An empty value means that
// the field is not set.
type Change struct {
	Field     string // such as clusterLabels.site
	Was, Will string
}

func (c Change) String() string {
	return fmt.Sprintf("%s: %s → %s", c.Field, orNone(c.Was), orNone(c.Will))
}

func orNone(text string) string {
	if text == "" {
		return "(none)"
	}
	return text
}

// changes returns the fields in which two specs differ, sorted.
func changes(was, will v1alpha1.SubmarinerSpec) []Change {
	return diff(fields(was), fields(will))
}

// diff returns the values that differ, sorted.
func diff(before, after map[string]string) []Change {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var out []Change
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if before[k] != after[k] {
			out = append(out, Change{k, before[k], after[k]})
		}
	}
	return out
}

// fields returns the fields of a spec and their values, as text. It returns fingerprints of
// certificates, and nothing of secrets that a spec may hold.
func fields(spec v1alpha1.SubmarinerSpec) map[string]string {
	text, err := json.Marshal(spec)
	var tree map[string]any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		panic(fmt.Sprintf("a SubmarinerSpec is JSON: %v", err)) // strings, numbers, lists and maps
	}
	out := map[string]string{}
	flatten(out, "", tree)
	for field := range out {
		switch field {
		case "brokerK8sCA":
			out[field] = fmt.Sprintf("certificate %.12x", sha256.Sum256([]byte(out[field])))
		case "brokerK8sApiServerToken", "ceIPSecPSK":
			out[field] = fmt.Sprintf("(secret, %d characters)", len(out[field]))
		}
	}
	return out
}

// flatten adds the values in a tree of JSON to out, by path. Values that mean the same as a
// missing field are left out.
func flatten(out map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for k, item := range v {
			flatten(out, strings.TrimPrefix(path+"."+k, "."), item)
		}
	case []any:
		var items []string
		for i, item := range v {
			switch item.(type) {
			case map[string]any, []any:
				flatten(out, fmt.Sprintf("%s[%d]", path, i), item)
			default:
				items = append(items, fmt.Sprint(item))
			}
		}
		if len(items) > 0 {
			out[path] = strings.Join(items, ",")
		}
	case nil:
	default:
		if text := fmt.Sprint(v); text != "" {
			out[path] = text
		}
	}
}
