package policy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

func TestParseSelector(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "any",
		"  ":                                 "any",
		"env=production":                     "env=production",
		"env==production":                    "env=production",
		"env: production":                    "env=production",
		" env =production , tier":            "env=production,tier",
		"env!=production":                    "env!=production",
		"env: !production":                   "env!=production",
		"env=!production":                    "env!=production",
		"!env":                               "!env",
		"env=":                               "env=",
		"env!=":                              "env!=",
		"tier in (a, b)":                     "tier in (a,b)",
		"tier notin(a,b)":                    "tier notin (a,b)",
		"tier in (a)":                        "tier=a",
		"env=a,env=b":                        "env=a,env=b",
		"example.com/env=a,in,notin in (in)": "example.com/env=a,in,notin=in",
	} {
		s, err := ParseSelector(in)
		require.NoError(t, err, in)
		require.Equal(t, want, SelectorText(s), in)
		_, err = ParseSelector(strings.TrimPrefix(want, "any"))
		require.NoError(t, err, want)
	}
}

func TestParseSelectorMistakes(t *testing.T) {
	for in, want := range map[string]string{
		"env=production tier=x": `character 16 of "env=production tier=x": expected ",", found "tier"`,
		"env=a,":                `character 7 of "env=a,": expected another requirement at the end`,
		",env":                  `character 1 of ",env": expected the key of a label, found ","`,
		"env in a":              `character 8 of "env in a": expected "(", found "a"`,
		"env in (a,b":           `character 12 of "env in (a,b": expected "," or ")" at the end`,
		"env in (a b)":          `character 11 of "env in (a b)": expected "," or ")", found "b"`,
		"env = (":               `character 7 of "env = (": expected a value, found "("`,
		"env: !":                `character 7 of "env: !": expected a value at the end`,
		"!":                     `character 2 of "!": expected the key of a label at the end`,
		"env > 5":               `character 5 of "env > 5": label values are text and have no order: use in or notin`,
		"env ! a":               `character 5 of "env ! a": expected "=", "!=", "in", "notin" or ",", found "!"`,
		"é=1":                   `character 1 of "é=1": "é" is not a label key: use letters, digits, '-', '_' and '.', optionally after a DNS name and '/'`,
		"a=1,b=é\x1b":           `character 7 of "a=1,b=é\x1b": "é\x1b" is not a label value: use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends`,
	} {
		_, err := ParseSelector(in)
		require.EqualError(t, err, want)
	}
}

// What kubectl's selectors mean, ours mean too.
func TestParseSelectorAgrees(t *testing.T) {
	pieces := []string{"a", "b", "in", "notin", "=", "==", "!=", "!", "(", ")", ",", " ", "a=b", "b in (a,b)", "!a"}
	var both int
	for range 200_000 {
		var text string
		for range 1 + rand.IntN(7) {
			text += pieces[rand.IntN(len(pieces))]
		}
		theirs, err := labels.Parse(text)
		if err != nil {
			continue
		}
		s, err := ParseSelector(text)
		require.NoError(t, err, "%q", text)
		ours, err := kubernetes(s)
		require.NoError(t, err, "%q", text)
		for _, set := range []labels.Set{{}, {"a": "a"}, {"a": "b"}, {"b": "a", "in": "b"}, {"a": "", "b": "b"}} {
			require.Equal(t, theirs.Matches(set), ours.Matches(set), "%q of %v", text, set)
		}
		both++
	}
	require.Greater(t, both, 10_000)
}

func TestReadFile(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{
			"the proposal's default",
			"kind: CablePolicies\nmetadata:\n  name: default\nspec:\n  cableDriver:\n    name: \"ipsec\"\n",
			"default: any | any | ipsec",
		},
		{
			"the proposal's selectors",
			"kind: CablePolicies\nmetadata: {name: a}\nspec:\n  leftClusterSelector:\n    env: production\n  rightClusterSelector:\n    env: !production\n  cableDriver:\n    name: ipsec\n",
			"a: env=production | env!=production | ipsec",
		},
		{
			"quoted, and JSON",
			`{"kind":"CablePolicies","metadata":{"name":"a"},"spec":{"leftClusterSelector":{"env":"!production"},"cableDriver":{"name":"ipsec"}}}`,
			"a: env!=production | any | ipsec",
		},
		{
			"the API's",
			"apiVersion: submariner.io/v1alpha1\nkind: CablePolicies\nmetadata: {name: a}\nspec:\n- name: ipsec\n  leftClusterSelector: {matchLabels: {env: lab, tier: \"!edge\"}}\n- name: vxlan\nstatus: {}\n",
			"a: env=lab,tier!=edge | any | ipsec; any | any | vxlan",
		},
		{
			"short, with expressions",
			"kind: CablePolicies\nmetadata: {name: a}\nspec:\n  rightClusterSelector: {matchExpressions: [{key: env, operator: Exists}]}\n  cableDriver: {name: ipsec}\n",
			"a: any | env | ipsec",
		},
		{
			"a List of kubectl's, with a ConfigMap",
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: tuned, uid: x, managedFields: [{manager: a}]}\n  data: {CableCustomConfig: \"mtu: 1300\"}\n" +
				"- kind: CablePolicies\n  metadata: {name: a, creationTimestamp: null, resourceVersion: \"7\"}\n  spec: [{name: vxlan, options: {metadata: {name: tuned}}}]\n  status: {clusterSets: [default]}\n",
			"tuned map[\"CableCustomConfig\":\"mtu: 1300\"]\na: any | any | vxlan",
		},
		{
			"a List in JSON",
			`{"apiVersion":"submariner.io/v1alpha1","kind":"CablePoliciesList","metadata":{},"items":[{"kind":"CablePolicies","metadata":{"name":"a"},"spec":[{"name":"vxlan"}]}]}`,
			"a: any | any | vxlan",
		},
		{
			"two",
			"---\n# nothing\n---\nkind: CablePolicies\nmetadata: {name: a}\nspec: [{name: vxlan}]\n---\nkind: CablePolicies\nmetadata: {name: b}\nspec: [{name: ipsec}]\n",
			"a: any | any | vxlan\nb: any | any | ipsec",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, errs := readFile([]byte(test.text))
			err := errors.Join(errs...)
			require.NoError(t, err)
			var got []string
			for _, cm := range m.ConfigMaps {
				got = append(got, fmt.Sprintf("%s %q", cm.Name, cm.Data))
			}
			for _, p := range m.Policies {
				var rules []string
				for _, r := range p.ConnectionPolicies {
					rules = append(rules,
						SelectorText(r.LeftClusterSelector)+" | "+SelectorText(r.RightClusterSelector)+" | "+
							r.CableDriver)
				}
				got = append(got, p.Name+": "+strings.Join(rules, "; "))
				require.NoError(t, check(p, known))
			}
			require.Equal(t, test.want, strings.Join(got, "\n"))
		})
	}
}

func TestReadFileMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "it contains no policy",
		"# nothing":                     "it contains no policy",
		"a: b: c":                       "not YAML: mapping values are not allowed in this context",
		"- a":                           "the object at line 1: it is not a YAML mapping (KEY: VALUE)",
		"\nkind: Secret":                `the policy at line 2: kind is "Secret": use CablePolicies, ConfigMap, or a List of them`,
		"kind: ConfigMap":               "it contains no policy",
		"kind: List\nitems: []":         "it contains no policy",
		"kind: List\nitems:\n- x":       "the object at line 3: it is not a YAML mapping (KEY: VALUE)",
		"kind: ConfigMap\ndata: {a: 1}": "the ConfigMap at line 1: data must not be a number: quote it if it is a string",
		"kind: ConfigMap\nmetadata:\n  name: cable-driver-config\ndata:\n  CableCustomConfig: |\n  vxlanID: 100": "the ConfigMap at line 1: the settings are beside the key CableCustomConfig, which is empty: indent them below it:\n  data:\n    CableCustomConfig: |\n      vxlanID: 100",
		"kind: CablePolicies":                                                             "the policy at line 1: spec is missing: it must be a list of rules, or one rule",
		"kind: CablePolicies\napiVersion: v1\nspec: []":                                   `the policy at line 1: apiVersion is "v1", not submariner.io/v1alpha1`,
		"kind: CablePolicies\nspec: {cableDriver: ipsec}":                                 "the policy at line 1: spec.cableDriver must not be a string: quote it if it is a string",
		"kind: CablePolicies\nspec: {cableDriver: {name: ipsec}, leftSelector: {env: x}}": `the policy at line 1: spec: unknown field "leftSelector"`,
		"kind: CablePolicies\nspec: [{name: ipsec, lefClusterSelector: {}}]":              `the policy at line 1: spec: unknown field "lefClusterSelector"`,
		"kind: CablePolicies\nspec: {leftClusterSelector: {env: true}}":                   "the policy at line 1: spec.leftClusterSelector must not be a bool: quote it if it is a string",
		"kind: CablePolicies\nspec: {leftClusterSelector: {matchLabels: {}, env: x}}":     `the policy at line 1: spec: unknown field "env"`,
		"kind: CablePolicies\nspec: [{name: ipsec}]\nmetadata: {nmae: x}":                 `the policy at line 1: unknown field "nmae"`,
		"kind: CablePolicies\nspec:\n- name: ipsec\n  name: vxlan":                        `the policy at line 1: line 4 has the key "name" again, which is at line 3: remove one`,
		"kind: CablePolicies\n" +
			strings.Repeat("a: b\n", 1<<20): "the policy at line 1: the mapping at line 1 has more than 1000 keys",
		"kind: CablePolicies\nspec: [{? [a] : b}]": "the policy at line 1: line 2 has a key that is no text",
		"kind: CablePolicies\n" +
			manyKeys(1<<16): "the policy at line 1: the mapping at line 1 has more than 1000 keys",
	} {
		_, errs := readFile([]byte(text))
		err := errors.Join(errs...)
		require.EqualError(t, err, want, text)
	}
}

// manyKeys is a mapping with so many keys.
func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: v\n", i)
	}
	return b.String()
}

// Load reads all documents of a file. It reports every document that it cannot read, and every
// mistake in the policies of the others.
func TestLoadReportsAllMistakes(t *testing.T) {
	_, err := Load(
		[]string{"a.yaml"},
		[][]byte{
			[]byte(
				"kind: Pod\n---\nkind: CablePolicies\nspec: 5\n---\nkind: CablePolicies\nmetadata: {name: Bad_}\nspec:\n- name: gre\n---\nkind: [\n"),
		},
	)
	for _, part := range []string{
		`a.yaml: the policy at line 1: kind is "Pod"`,
		"a.yaml: the policy at line 3: ",
		`a.yaml: policy "Bad_": `,
		`"gre"`,
		"a.yaml: not YAML",
	} {
		require.ErrorContains(t, err, part)
	}
}
