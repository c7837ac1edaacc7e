package report

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// fitted returns the report of many connections, of which some are not connected, and every tenth
// may carry packets.
func fitted(down func(int) bool) submarinerv1.GatewayStatus {
	cs := make([]submarinerv1.Connection, 4000)
	for i := range cs {
		cs[i].Endpoint = submarinerv1.EndpointSpec{
			CableName: fmt.Sprint(i),
			Hostname:  strings.Repeat("h", 500),
			Subnets:   []string{"10.0.0.0/8", strings.Repeat("1", 9000)},
		}
		cs[i].Member = new(i%10 == 0)
		cs[i].Status = submarinerv1.Connected
		if down(i) {
			cs[i].Status = submarinerv1.ConnectionError
		}
	}
	var s submarinerv1.GatewayStatus
	setFittingConnections(&s, cs)
	return s
}

// Connections that packets may take are the last ones to be left out, and those that are connected
// and wait for a failure the first ones.
func TestFitting(t *testing.T) {
	for name, test := range map[string]struct {
		down   func(int) bool
		all    int  // that are not connected
		hidden bool // whether some of them are left out
	}{
		"few are down":    {func(i int) bool { return i%10 == 1 }, 400, false},
		"one carries":     {func(i int) bool { return i == 0 }, 1, false},
		"too many to fit": {func(i int) bool { return i%10 != 0 && i%10 < 8 }, 2800, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := fitted(test.down)
			used := 0
			down := 0
			size := 0
			for _, c := range s.Connections {
				if *c.Member {
					used++
				}
				if c.Status != submarinerv1.Connected {
					down++
				}
				size += sizeOf(c)
				require.Equal(t, []string{"10.0.0.0/8"}, c.Endpoint.Subnets)
			}
			require.Equal(t, 400, used)
			require.Equal(t, test.all, down+s.ConnectionsOmittedDown)
			require.Equal(t, test.hidden, s.ConnectionsOmittedDown > 0)
			require.True(t, !test.hidden || len(s.Connections) == used+down)
			require.Equal(t, 4000, len(s.Connections)+s.ConnectionsOmitted)
			require.LessOrEqual(t, size, maxConnections)
			require.Greater(t, size, maxConnections*99/100)
		})
	}
}

// A connection without a cable is left out first, and one that carries packets last.
func TestRank(t *testing.T) {
	c := func(device string, status submarinerv1.ConnectionStatus, member bool) submarinerv1.Connection {
		return submarinerv1.Connection{Device: device, Status: status, Member: &member}
	}
	for want, c := range []submarinerv1.Connection{
		c("", submarinerv1.ConnectionError, false),
		c("vxlan-tunnel", submarinerv1.Connected, false),
		c("vxlan-tunnel", submarinerv1.ConnectionError, false),
		c("vxlan-tunnel", submarinerv1.Connected, true),
	} {
		require.Equal(t, want, rank(c))
	}
}

// What decides that no JSON need be made is never less than the JSON has, whatever fields a
// connection has.
func TestFits(t *testing.T) {
	for _, text := range []string{"", "x", "<", "\x00", `"`, "\xff", "ä", "\u2028"} {
		for _, times := range []int{1, 1000} {
			var c submarinerv1.Connection
			fillTexts(reflect.ValueOf(&c).Elem(), strings.Repeat(text, times))
			require.GreaterOrEqual(t, maxSize(&c), sizeOf(c), "%q", text)
		}
	}
	few := make([]submarinerv1.Connection, 500)
	for i := range few {
		few[i].StatusMessage = strings.Repeat("x", 500)
	}
	require.True(t, fits(few))
	require.False(t, fits(append(few, few...)))
}

// fillTexts gives all texts of a value a value, and all else one that is long as JSON.
func fillTexts(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int, reflect.Int64:
		v.SetInt(math.MinInt64)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillTexts(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			fillTexts(v.Index(i), text)
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{text + "1": text, text + "2": text}))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1<<30, 0))))
			return
		}
		for i := range v.NumField() {
			fillTexts(v.Field(i), text)
		}
	}
}
