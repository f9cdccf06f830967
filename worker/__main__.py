from penstock.worker.main import run

run()
