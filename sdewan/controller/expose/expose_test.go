package expose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// An annotation that cannot be followed says why.
func TestHostileAnnotations(t *testing.T) {
	s := &corev1.Service{
		Spec: corev1.ServiceSpec{
			ClusterIPs: []string{"10.0.0.1"},
			Ports:      []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	s.Name = "web"
	for annotation, want := range map[string]string{
		`x`:                                                                "must be JSON",
		`{"purpose":"a","zone":"wan"} {}`:                                  "something after",
		`{"purpose":"a","zone":"wan","port":1}`:                            `unknown field "port"`,
		`{"purpose":"a b","zone":"W"}`:                                     `purpose must be the label`,
		`{"purpose":"a","zone":"W"}`:                                       `zone must be the name of a FirewallZone`,
		`{"purpose":"a","zone":"*"}`:                                       `zone must be the name of a FirewallZone`,
		`{"purpose":"a","zone":"wan","ports":[{"port":-1}]}`:               "from 1 to 65535",
		`{"purpose":"a","zone":"wan","ports":[{"port":81}]}`:               "the Service has no port 81",
		`{"purpose":"a","zone":"wan","ports":[{"port":80},{"port":80}]}`:   "used twice",
		`{"purpose":"a","zone":"lan"}`:                                     "does not let Services be reached from zone lan",
		`{"purpose":"a","zone":"wan","ports":[{"port":80,"as":70000}]}`:    "from 1 to 65535",
		`{"purpose":"a","zone":"wan","ports":[{"port":80,"as":0}]}`:        "from 1 to 65535",
		`{"purpose":"a","zone":"wan","ports":` + fmt.Sprint("[", "[", "}"): "must be JSON",
	} {
		s.Annotations = map[string]string{Annotation: annotation}
		_, err := Rules(s, func(string) ([]string, error) { return []string{"wan"}, nil })
		require.ErrorContains(t, err, want, annotation)
	}
	s.Spec.ClusterIPs = []string{"None"}
	s.Annotations = map[string]string{Annotation: `{"purpose":"a","zone":"wan"}`}
	_, err := Rules(s, func(string) ([]string, error) { return []string{"wan"}, nil })
	require.ErrorContains(t, err, "no IPv4 address")
}

// One annotation does not become thousands of objects.
func TestHostileExposures(t *testing.T) {
	s := &corev1.Service{
		Spec: corev1.ServiceSpec{
			ClusterIPs: []string{"10.0.0.1"},
			Ports:      []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	zones := func(string) ([]string, error) { return []string{"wan"}, nil }
	var ports []string
	for i := range 15000 {
		ports = append(ports, fmt.Sprintf(`{"port":80,"as":%d}`, i+1))
	}
	s.Annotations = map[string]string{
		Annotation: `{"purpose":"a","zone":"wan","ports":[` + strings.Join(ports, ",") + "]}",
	}
	rules, err := Rules(s, zones)
	require.ErrorContains(t, err, "15000 ports are too many: list at most 64")
	require.Empty(t, rules, "one annotation becomes thousands of objects")
	s.Annotations = map[string]string{Annotation: `{"purpose":"a","zone":"wan"}`}
	for i := range 1000 {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: int32(1000 + i), Protocol: corev1.ProtocolTCP})
	}
	rules, err = Rules(s, zones)
	require.ErrorContains(t, err, "the Service has 1001 ports: list those to expose, at most 64")
	require.Empty(t, rules)
}

func FuzzParse(f *testing.F) {
	f.Add(`{"purpose":"cnf-1","zone":"wan","ports":[{"port":80,"as":8080}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		if e, err := parse(s); err == nil {
			require.NotEmpty(t, e.Purpose)
			require.NotEmpty(t, e.Zone)
		}
	})
}
