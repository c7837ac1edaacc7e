package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/maphash"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file reads a mirror by lists instead of a watch.

// poll reads the namespace once. It reports whether that has changed something, and whether the
// mirror was changed otherwise meanwhile, so that what was read does not count. What it reads is
// never older than what it has read before: otherwise, another API server of the broker could show
// that an object is missing which is there, which would count as deleted.
func (m *mirror) poll(ctx context.Context) (changed, again bool) {
	m.mu.Lock()
	epoch := m.epoch
	version := m.version
	before := m.digest
	m.mu.Unlock()
	answer, err := m.list(ctx, version)
	if apierrors.IsResourceExpired(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		answer, err = m.list(ctx, "") // the broker was restored from a backup
	}
	if ctx.Err() != nil {
		return false, false
	}
	var objects []any
	body, _ := answer.Raw()
	items, listed := splitList(body)
	digest := digestOf(items)
	same := digest != 0 && digest == before
	if err == nil && !same {
		objects, listed, err = m.decode(answer)
	}
	if err != nil {
		m.mu.Lock()
		m.version = "" // the version may be made up
		m.mu.Unlock()
		m.contact(err)
		return false, false
	}
	m.mu.Lock()
	if again = m.epoch != epoch; again {
		m.mu.Unlock()
		return false, true
	}
	if m.version = listed; !same {
		changed = m.replace(objects, listed)
		m.digest = digest
	}
	m.mu.Unlock()
	m.contact(nil)
	if changed {
		m.changed()
	}
	return changed, false
}

// list lists the namespace, not older than a version.
func (m *mirror) list(ctx context.Context, version string) (rest.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	m.ask()
	request := m.lists.Get().Namespace(m.namespace).Resource(m.kind.Resource)
	if version != "" {
		request.Param("resourceVersion", version)
	}
	answer := request.Do(ctx)
	err := answer.Error()
	if err != nil && context.Cause(ctx) == errNoAnswer {
		err = errNoAnswer
	}
	return answer, err
}

// decode returns the objects of a list, and its version.
func (m *mirror) decode(answer rest.Result) (objects []any, version string, err error) {
	list := m.kind.newList()
	if err := answer.Into(list); err != nil {
		return nil, "", err
	}
	err = meta.EachListItem(list, func(o runtime.Object) error { objects = append(objects, o); return nil })
	return objects, list.GetResourceVersion(), err
}

// splitList splits a list of custom resources, as an API server sends it, into the items, with what
// precedes them, and the version of the list, which follows them in the metadata of the list. Most
// polls find the same items as before, under a later version: to decode them takes five times as
// long as to receive them. items is nil if the list looks different.
func splitList(body []byte) (items []byte, version string) {
	at := bytes.LastIndex(body, []byte(`"metadata":{`))
	if at < 0 {
		return nil, ""
	}
	var end struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
			Continue        string `json:"continue"`
		} `json:"metadata"`
	}
	d := json.NewDecoder(io.MultiReader(strings.NewReader("{"), bytes.NewReader(body[at:])))
	d.DisallowUnknownFields() // such as the items
	if d.Decode(&end) != nil || end.Metadata.ResourceVersion == "" || end.Metadata.Continue != "" {
		return nil, ""
	}
	return body[:at], end.Metadata.ResourceVersion
}

// digestSeed is random, so that nobody can make different items with the same digest.
var digestSeed = maphash.MakeSeed()

// digestOf returns the digest of the items of a list; 0 for nil.
func digestOf(items []byte) uint64 {
	if items == nil {
		return 0
	}
	return max(1, maphash.Bytes(digestSeed, items))
}

// wrote notes what was written to the namespace, as the API server has answered; nil if the object
// was deleted. A watch would show it.
func (m *mirror) wrote(name string, o client.Object) {
	m.mu.Lock()
	m.epoch++
	m.digest = 0
	if o != nil {
		m.version = o.GetResourceVersion()
	}
	m.mu.Unlock()
	if o == nil {
		gone := m.kind.New()
		gone.SetName(name)
		_ = m.Delete(gone)
		return
	}
	_ = m.Update(o)
}

// restart begins another way of reading: a list that is under way does not count.
func (m *mirror) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	m.asked = time.Time{}
	m.version = ""
	m.digest = 0 // what a watch has shown is later than its last list
}
