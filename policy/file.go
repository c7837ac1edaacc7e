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

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/words"
)

// ReadFile parses policies from one or more documents in YAML or JSON, each in one of
// two forms. The form of the API:
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
// ReadFile returns an error if a document has neither form. It does not validate the
// policies; Check does. It ignores status.
func ReadFile(data []byte) ([]*v1alpha1.CablePolicies, error) {
	var out []*v1alpha1.CablePolicies
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && len(out) == 0:
			return nil, errors.New("it contains no policy")
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		root := doc.Content[0]
		if root.Tag == "!!null" {
			continue
		}
		p, err := readDocument(root)
		if err != nil {
			return nil, fmt.Errorf("the policy at line %d: %w", root.Line, err)
		}
		out = append(out, p)
	}
}

// Load returns the policies of a file, as they are written to a cluster, or everything
// that is wrong with them. Its name is for errors.
func Load(name string, data []byte) ([]*v1alpha1.CablePolicies, error) {
	policies, err := ReadFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	seen := map[string]bool{}
	for _, p := range policies {
		delete(p.Labels, submarinerv1.ClusterIDLabel) // of an object taken from another cluster
		p.ObjectMeta = metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, Annotations: p.Annotations}
		errs = append(errs, words.Prefix(fmt.Sprintf("%s: policy %q: ", name, p.Name), Check(p)))
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("%s: policy %q is in it twice", name, p.Name))
		}
		seen[p.Name] = true
	}
	return policies, errors.Join(errs...)
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

func readDocument(root *yaml.Node) (*v1alpha1.CablePolicies, error) {
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("it is not a YAML mapping (KEY: VALUE)")
	}
	text, err := toJSON(root)
	if err != nil {
		return nil, err
	}
	var d document
	if err := strict(text, &d, ""); err != nil {
		return nil, err
	}
	want := v1alpha1.GroupVersion.String()
	switch {
	case d.Kind != "CablePolicies":
		return nil, fmt.Errorf("kind is %s, not CablePolicies", quote(d.Kind))
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
	untag(root)
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

func untag(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		n.Value, n.Tag, n.Style = strings.TrimSpace(n.Tag+" "+n.Value), "!!str", yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		untag(c)
	}
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
