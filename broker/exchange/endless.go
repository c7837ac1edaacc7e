package exchange

import (
	"errors"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file bounds lists and watches that a malicious API server never completes. client-go
// collects a list that comes in pages, or as the first events of a watch, until the API server says
// that this was all. And it asks again and again for what follows a resource version, whatever the
// API server has once told it.

var errEndless = errors.New("the API server's list does not end")

// pages counts what has come of a list.
type pages struct {
	most           int // objects; 0: any number
	objects, pages int
}

// add counts a page, which options have asked for. It ends a list that has too many objects: the
// mirror finds that out. The caller asks for one page at a time.
func (p *pages) add(options metav1.ListOptions, page client.ObjectList) error {
	if options.Continue == "" {
		p.objects = 0
		p.pages = 0
	}
	p.objects, p.pages = p.objects+meta.LenList(page), p.pages+1
	switch {
	case p.most == 0 || page.GetContinue() == "":
	case p.objects > p.most:
		page.SetContinue("")
	case p.pages > p.most:
		return errEndless
	}
	return nil
}

// ended is a watch that ends with an error if what exists does not end.
type ended struct {
	watch.Interface
	results chan watch.Event
	stopped chan struct{}
	stop    func()
}

// endedWatch returns a watch that ends if more than most events come before all that exists was
// shown. note is called then. 0 is any number.
func endedWatch(w watch.Interface, options metav1.ListOptions, most int, note func(error)) watch.Interface {
	if most == 0 || options.SendInitialEvents == nil || !*options.SendInitialEvents {
		return w
	}
	e := &ended{Interface: w, results: make(chan watch.Event), stopped: make(chan struct{})}
	e.stop = sync.OnceFunc(func() { close(e.stopped); w.Stop() })
	go e.run(most, note)
	return e
}

func (e *ended) run(most int, note func(error)) {
	defer close(e.results)
	shown := 0
	all := false
	for event := range e.Interface.ResultChan() {
		if o, ok := event.Object.(client.Object); ok && event.Type == watch.Bookmark {
			all = all || o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		}
		if shown++; !all && shown > most {
			note(errEndless)
			event = watch.Event{
				Type:   watch.Error,
				Object: &metav1.Status{Status: metav1.StatusFailure, Message: errEndless.Error()},
			}
		}
		select {
		case e.results <- event:
		case <-e.stopped:
			return
		}
		if event.Type == watch.Error {
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (e *ended) ResultChan() <-chan watch.Event { return e.results }

// Stop implements watch.Interface.
func (e *ended) Stop() { e.stop() }

// anew returns the error of a request for what follows a resource version as one after which
// client-go reads everything anew, if the API server cannot read the version: an earlier one has
// made it up.
func anew(err error, version string) error {
	status := apierrors.APIStatus(nil)
	if version == "" || version == "0" || !errors.As(err, &status) {
		return err
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return apierrors.NewResourceExpired(err.Error())
	}
	return err
}
