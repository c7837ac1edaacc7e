package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
)

// readFile parses one or more documents in YAML or JSON: policies, ConfigMaps, and Lists of
// them, as kubectl prints them. A policy has one of two forms. The form of the API:
//
//	kind: CablePolicies
//	metadata: {name: lab}
//	spec:
//	- leftClusterSelector: {matchLabels: {env: lab}}
//	  name: wireguard
//
// The short form for a single rule, with selectors written like labels; a value that
// begins with "!" excludes clusters with that value:
//
//	kind: CablePolicies
//	metadata: {name: lab}
//	spec:
//	  leftClusterSelector:
//	    env: lab
//	    tier: !edge
//	  cableDriver: {name: wireguard}
//
// readFile returns the documents that it can read, and an error for each other one. It does not
// validate the policies; Check does. It ignores status.
func readFile(data []byte) (out Manifest, errs []error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && len(out.Policies) == 0 && errs == nil:
			return out, []error{errors.New("it contains no policy")}
		case errors.Is(err, io.EOF):
			return out, errs
		case err != nil: // what follows cannot be read
			return out, append(errs, fmt.Errorf("not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: ")))
		}
		if root := doc.Content[0]; root.Tag != "!!null" {
			errs = append(errs, out.read(root)...)
		}
	}
}

// document is a policy in either form.
type document struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       json.RawMessage   `json:"spec"`
	Status     json.RawMessage   `json:"status"`
}

// shortSpec is the spec of the short form.
type shortSpec struct {
	LeftClusterSelector  shortSelector `json:"leftClusterSelector"`
	RightClusterSelector shortSelector `json:"rightClusterSelector"`
	CableDriver          struct {
		Name    string                 `json:"name"`
		Options *v1alpha1.CableOptions `json:"options"`
	} `json:"cableDriver"`
}

// read adds an object, or the objects of a list.
func (m *Manifest) read(root *yaml.Node) (errs []error) {
	if root.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("the object at line %d: it is not a YAML mapping (KEY: VALUE)", root.Line)}
	}
	var kind string
	var items *yaml.Node
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "kind":
			kind = root.Content[i+1].Value
		case "items":
			items = root.Content[i+1]
		}
	}
	if strings.HasSuffix(kind, "List") && items != nil {
		for _, item := range items.Content {
			errs = append(errs, m.read(item)...)
		}
		return errs
	}
	text, err := toJSON(root)
	switch {
	case err != nil:
	case kind == configMapKind:
		if err = m.readConfigMap(text); err == nil {
			return nil
		}
		return []error{fmt.Errorf("the ConfigMap at line %d: %w", root.Line, err)}
	default:
		var p *v1alpha1.CablePolicies
		if p, err = readPolicy(text); err == nil {
			m.Policies = append(m.Policies, p)
			return nil
		}
	}
	return []error{fmt.Errorf("the policy at line %d: %w", root.Line, err)}
}

// readPolicy parses a policy in either form.
func readPolicy(text []byte) (*v1alpha1.CablePolicies, error) {
	var d document
	if err := strict(text, &d, ""); err != nil {
		return nil, err
	}
	want := v1alpha1.GroupVersion.String()
	switch {
	case d.Kind != "CablePolicies":
		return nil, fmt.Errorf("kind is %s: use CablePolicies, ConfigMap, or a List of them", quote(d.Kind))
	case d.APIVersion != "" && d.APIVersion != want:
		return nil, fmt.Errorf("apiVersion is %s, not %s", quote(d.APIVersion), want)
	}
	p := &v1alpha1.CablePolicies{ObjectMeta: d.Metadata}
	switch spec := bytes.TrimSpace(d.Spec); {
	case bytes.HasPrefix(spec, []byte("[")):
		if err := strict(spec, &p.ConnectionPolicies, "spec"); err != nil {
			return nil, err
		}
	case bytes.HasPrefix(spec, []byte("{")):
		var short shortSpec
		if err := strict(spec, &short, "spec"); err != nil {
			return nil, err
		}
		p.ConnectionPolicies = []v1alpha1.CablePolicySpec{{
			LeftClusterSelector:  v1alpha1.ClusterSelector(short.LeftClusterSelector),
			RightClusterSelector: v1alpha1.ClusterSelector(short.RightClusterSelector),
			CableDriver:          short.CableDriver.Name, CableOptions: short.CableDriver.Options,
		}}
	case len(spec) > 0 && !bytes.Equal(spec, []byte("null")):
		return nil, fmt.Errorf("spec is %.80s: it must be a list of rules, or one rule", spec)
	default:
		return nil, errors.New("spec is missing: it must be a list of rules, or one rule")
	}
	for i := range p.ConnectionPolicies {
		spellOut(&p.ConnectionPolicies[i].LeftClusterSelector)
		spellOut(&p.ConnectionPolicies[i].RightClusterSelector)
	}
	return p, nil
}

// toJSON converts a YAML document to JSON. It treats a YAML tag, such as "!production"
// in "env: !production", as text.
func toJSON(root *yaml.Node) ([]byte, error) {
	if err := prepare(root); err != nil {
		return nil, err
	}
	var v map[string]any
	if err := root.Decode(&v); err != nil {
		return nil, fmt.Errorf("not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("it has a key that is not a string: %w", err)
	}
	return text, nil
}

// maxKeys is the maximum number of keys in a mapping: the decoder compares each with each.
const maxKeys = 1000

// prepare turns tags into text. The error is a key that a mapping has twice, of which the decoder
// would report every pair.
func prepare(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.ScalarNode && strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!"):
		n.Value = strings.TrimSpace(n.Tag + " " + n.Value)
		n.Tag = "!!str"
		n.Style = yaml.DoubleQuotedStyle
	case n.Kind == yaml.MappingNode:
		if len(n.Content) > 2*maxKeys {
			return fmt.Errorf("the mapping at line %d has more than %d keys", n.Line, maxKeys)
		}
		first := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d has a key that is no text", key.Line)
			}
			if line, twice := first[key.Value]; twice {
				return fmt.Errorf("line %d has the key %s again, which is at line %d: remove one", key.Line,
					quote(key.Value), line)
			}
			first[key.Value] = key.Line
		}
	}
	for _, c := range n.Content {
		if err := prepare(c); err != nil {
			return err
		}
	}
	return nil
}

// strict decodes JSON and rejects unknown fields; field is the path of the value in the document.
func strict(text []byte, into any, field string) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		at := strings.Trim(field+"."+wrong.Field, ".")
		return fmt.Errorf("%s must not be a %s: quote it if it is a string", at, wrong.Value)
	case field != "":
		return fmt.Errorf("%s: %s", field, strings.TrimPrefix(err.Error(), "json: "))
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// shortSelector is a selector, in its full form or as labels.
type shortSelector v1alpha1.ClusterSelector

// UnmarshalJSON implements json.Unmarshaler.
func (s *shortSelector) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	_, labels := fields["matchLabels"]
	_, expressions := fields["matchExpressions"]
	if labels || expressions {
		return strict(text, (*v1alpha1.ClusterSelector)(s), "")
	}
	return json.Unmarshal(text, &s.MatchLabels)
}

// spellOut replaces labels with "!" by expressions, which every Kubernetes client
// understands.
func spellOut(s *v1alpha1.ClusterSelector) {
	for _, k := range sortedKeys(s.MatchLabels) {
		if v, not := strings.CutPrefix(s.MatchLabels[k], "!"); not {
			delete(s.MatchLabels, k)
			s.MatchExpressions = append(s.MatchExpressions, v1alpha1.ClusterRequirement{
				Key: k, Operator: metav1.LabelSelectorOpNotIn, Values: []string{v},
			})
		}
	}
	if len(s.MatchLabels) == 0 {
		s.MatchLabels = nil
	}
}
