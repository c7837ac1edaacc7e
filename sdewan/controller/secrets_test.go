package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/sdewan"
	"subctl/sdewan/rest/openwrttest"
)

// vault answers for Secrets, a second after it was asked.
type vault struct {
	client.Reader
	data  map[string][]byte
	asked atomic.Int64
	stuck atomic.Bool
}

func (v *vault) Get(ctx context.Context, _ client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	v.asked.Add(1)
	if v.stuck.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(time.Second)
	to.(*corev1.Secret).Data = v.data
	return nil
}

// The pods of a CNF have the same Secrets, which one of them reads for all; and a change is seen as
// soon as if each pod read them itself.
func TestSecretsAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{data: map[string][]byte{"password": []byte("old\n"), "ca.crt": openwrttest.NewAuthority(t).PEM}}
		f := newFleet(v, Options{now: time.Now})
		t.Cleanup(f.close)
		cnf := types.NamespacedName{Namespace: "a", Name: "cnf"}
		var pods []*corev1.Pod
		for i := range 200 {
			p := &corev1.Pod{}
			p.Namespace = "a"
			p.Name = fmt.Sprint("pod", i)
			p.UID = types.UID(fmt.Sprint(i))
			p.Status.PodIP = "192.0.2.1"
			p.Labels = map[string]string{sdewan.AccountLabel: "account", sdewan.CertLabel: "cert"}
			pods = append(pods, p)
		}
		read := func(pods ...*corev1.Pod) int64 { // returns how many Secrets were read
			v.asked.Store(0)
			for _, p := range pods {
				go func() {
					if _, wrong := f.of(t.Context(), cnf, p); wrong != nil {
						t.Error(wrong)
					}
				}()
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			return v.asked.Load()
		}
		password := func(p *corev1.Pod) string {
			a, _, wrong := f.credentials(t.Context(), p)
			require.Nil(t, wrong)
			return string(a.Password)
		}
		require.EqualValues(t, 2, read(pods...))
		require.Zero(t, read(pods...))
		time.Sleep(credentialsFor - 25*time.Second)
		late := pods[0].DeepCopy()
		late.UID = "late"
		require.Zero(t, read(late), "a new pod")
		require.EqualValues(t, 2, read(late), "what the new pod knows is as old")
		require.Len(t, f.secrets.readings, 2)

		v.data = map[string][]byte{"password": []byte("new\n"), "ca.crt": v.data["ca.crt"]}
		require.Equal(t, "old", password(pods[0]))
		m, _ := f.of(t.Context(), cnf, pods[0])
		f.distrust(m, pods[0])
		require.Equal(t, "new", password(pods[0]), "a pod whose sync has failed")

		// What is missing is looked up each time, and an API server that does not answer keeps each
		// pod waiting for its own time only.
		f.distrust(m, pods[0])
		for want, data := range map[string]map[string][]byte{
			"no key password": nil,
			"no key ca.crt":   {"password": []byte("x")},
			"no certificate":  {"password": []byte("x"), "ca.crt": []byte("x")},
		} {
			v.data = data
			_, wrong := f.of(t.Context(), cnf, pods[0])
			require.NotNil(t, wrong)
			require.Contains(t, wrong.message, want)
		}
		v.stuck.Store(true)
		began := time.Now()
		get := func(within time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if _, _, err := f.secrets.get(ctx, credentialsOf(pods[0])[0].secretKey); !errors.Is(err,
				context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		var reader sync.WaitGroup
		reader.Go(func() { get(time.Minute) })
		synctest.Wait()
		get(time.Second)
		require.Equal(t, time.Second, time.Since(began))
		reader.Wait()
		time.Sleep(credentialsFor)
		synctest.Wait()
		require.Empty(t, f.secrets.readings, "forgotten although nobody reads again")
	})
}
