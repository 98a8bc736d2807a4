package admin

import (
	_ "embed"
	"net/http"
)

// openAPI describes the API.
//
//go:embed openapi.yaml
var openAPI []byte

func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI) // a caller that went away needs none
}
