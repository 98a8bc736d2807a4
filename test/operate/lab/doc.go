// Package lab is what tests of DLQ operations need: daemons as processes, dead
// letters of many kinds, the daemons' API, and a way between them and a broker on
// which a test can stop the world at an exact request.
package lab
