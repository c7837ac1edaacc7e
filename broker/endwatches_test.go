package broker_test

import (
	"io"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/internal/kubetest"
)

// EndWatches writes another random value each time: every account can read it.
func TestEndWatchesWritesNoTime(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	cred, err := broker.AddMember(t.Context(), d.Admin, d.NS, "east", "uid-east", broker.Reservation{})
	require.NoError(t, err)
	east, err := rest.HTTPClientFor(d.Server.As(string([]byte(cred.Token))))
	require.NoError(t, err)
	titles := func() []string {
		answer, err := east.Get(d.Server.Config().Host + "/openapi/v3/apis/submariner.io/v1")
		require.NoError(t, err)
		defer func() { require.NoError(t, answer.Body.Close()) }()
		schema, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return regexp.MustCompile(`watches ended[^"]*"`).FindAllString(string(schema), -1)
	}
	random := regexp.MustCompile(`^watches ended: [A-Z2-7]{26}"$`)
	before := titles()
	for range 2 {
		require.NoError(t, broker.EndWatches(t.Context(), d.Admin))
		brokertest.Eventually(t, func() bool {
			now := titles()
			return len(now) == 2 && (len(before) == 0 || now[0] != before[0] && now[1] != before[1])
		})
		before = titles()
		for _, title := range before {
			require.Regexp(t, random, title)
		}
	}
}
